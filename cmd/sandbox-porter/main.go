// Command sandbox-porter carries the streams and files of a pod: see package porter. It is in the
// image that every pod has beside that of its program.
//
//	sandbox-porter serve SPOOL LINE VOLUME WINDOW LIMIT [DIRECTORY...]   the porter
//	sandbox-porter await SPOOL                            wait until the program's container may start
//	sandbox-porter join LINE INIT [ARGUMENT...]           become init, with streams to the porter
//	sandbox-porter relay SPOOL                            one connection of a controller
//	sandbox-porter probe [ADDRESS...]                     try to get out of the pod
//	sandbox-porter install DIRECTORY                      copy the programs of this image there
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine/kubernetes/porter"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-porter:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: sandbox-porter serve | await | join | relay | probe | install, by evalbox alone")

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	what, args := args[0], args[1:]
	switch {
	case what == "serve" && len(args) >= 5:
		return serve(args)
	case what == "await" && len(args) == 1:
		return porter.Await(args[0])
	case what == "join" && len(args) >= 2:
		return porter.Join(args[0], args[1:])
	case what == "relay" && len(args) == 1:
		return porter.Relay(args[0], os.Stdin, os.Stdout)
	case what == "probe":
		return porter.Probe(context.Background(), args, os.Stdout)
	case what == "install" && len(args) == 1:
		return install(args[0])
	}
	return errUsage
}

func serve(args []string) error {
	window, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	limit, err := strconv.ParseInt(args[4], 10, 64)
	if err != nil {
		return err
	}
	syscall.Umask(0) // modes are those of the archives
	terminate, signals := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		close(terminate)
	}()
	return porter.Serve(context.Background(), porter.Config{Spool: args[0], Line: args[1], Volume: args[2], Window: window, Limit: limit, Needs: args[5:]}, terminate)
}

// install copies both programs, for clusters without image volumes.
func install(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{self, filepath.Join(filepath.Dir(self), "init")} {
		program, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), program, 0o555); err != nil {
			return err
		}
	}
	return nil
}
