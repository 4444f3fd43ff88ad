package egress_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	job := spec.Job{RunID: "r1", Egress: &spec.Egress{Level: string(policy.API), Allow: []string{"pypi.org"},
		Connections: 8, Requests: 100, Bytes: 1 << 20, ConnectionTimeSeconds: 60}}
	session, err := egress.Open(job, dir, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	if err != nil {
		fmt.Println(err)
		return
	}
	// The container's init connects to this socket.
	conn, err := net.Dial("unix", filepath.Join(session.Dir(), spec.EgressSocket))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	var status [12]byte
	_, err = conn.Read(status[:])
	session.Close()
	fmt.Printf("%s %v; %d of %d requests refused\n", status, err, session.Report().Refused, session.Report().Requests)
	// Output: HTTP/1.1 403 <nil>; 1 of 1 requests refused
}
