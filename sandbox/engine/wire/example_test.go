package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

func ExampleJob_Encode() {
	job := wire.Job{Nonce: wire.NewNonce(), Args: []string{"python3", "train.py"}, Dir: "/work", Timeout: time.Minute}
	frame, err := job.Encode()
	fmt.Println(bytes.HasPrefix(frame, []byte("\x00EBX")), err)
	job.Dir = "work"
	_, err = job.Encode()
	fmt.Println(err)
	// Output:
	// true <nil>
	// the working directory "work" is not an absolute path
}

// A container that ends before its init was ready shows as a cut connection.
func ExampleReceiver() {
	receiver := wire.NewReceiver()
	fmt.Fprint(receiver.Stderr(), "exec format error")
	receiver.Close(nil)
	_, err := receiver.Ready(context.Background())
	fmt.Println(errors.Is(err, wire.ErrCut), receiver.Complaint())
	// Output: true exec format error
}
