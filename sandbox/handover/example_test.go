package handover_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox/handover"
)

func ExampleListen() {
	dir, err := os.MkdirTemp("", "handover-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	listener, err := handover.Listen(filepath.Join(dir, "s"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go func() {
		conn, err := handover.Dial(filepath.Join(dir, "s"))
		if err == nil {
			err = conn.Send("hello")
		}
		if err != nil {
			fmt.Println(err)
		}
	}()
	conn, err := listener.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	var message string
	_, err = conn.Receive(&message, time.Now().Add(time.Minute))
	fmt.Println(message, err)
	// Output: hello <nil>
}
