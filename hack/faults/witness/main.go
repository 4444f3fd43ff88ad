// Command witness is the program of the fault suite: the only file of a tiny image, under
// the name of the Python interpreter as well. It writes down what really happens to it,
// in ./final/witness, one line each, before or after it happens:
//
//	start TOKEN    it runs; a second line of this kind is a second run
//	score X        it has printed this score
//	term           it got SIGTERM
//	end CODE       its next step is to exit with this code
//
// While it lives it holds a shared lock on that file, so its death can be seen.
//
//	witness KIND CODE TOKEN
//
// It pauses three times, until ./input/go1, go2 and go3 exist. KIND "plain" dies of
// SIGTERM; "polite" ends with code 0 when it gets one; "slow" does so half a second later,
// and leaves its answer before. "busy" computes while it pauses; "idle" sleeps for three
// seconds instead of its first pause. These two keep to two processors, whatever the machine has.
// As an interpreter it takes the words from the first line of the script, a comment, and
// pauses for a moment each time, unless a fourth word is "wait".
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// moment is a pause of a program that nobody lets go on.
	moment = 100 * time.Millisecond
	// lastWords is how long a slow program takes to end, nap how long an idle one sleeps.
	lastWords = 500 * time.Millisecond
	nap       = 3 * time.Second
	// look is the interval at which a program looks whether it may go on.
	look = 2 * time.Millisecond
)

func main() {
	kind, code, token, wait := arguments()
	witness, err := os.OpenFile("final/witness", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fail(err)
	}
	if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_SH); err != nil {
		fail(err)
	}
	note := func(format string, args ...any) {
		if _, err := fmt.Fprintf(witness, format+"\n", args...); err != nil {
			fail(err)
		}
	}
	answer := func() {
		if err := os.WriteFile("final/answer", []byte(strings.Repeat(token+"\n", 1<<12)), 0o644); err != nil {
			fail(err)
		}
	}
	switch kind {
	case "polite", "slow":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			<-asked
			note("term")
			if kind == "slow" {
				time.Sleep(lastWords)
				answer()
			}
			note("end 0")
			os.Exit(0)
		}()
	case "busy", "idle":
		if err := keepToTwo(); err != nil {
			fail(err)
		}
	}
	pause := func(n int) {
		switch {
		case kind == "idle" && n == 1:
			time.Sleep(nap)
			return
		case !wait:
			time.Sleep(moment)
		}
		for wait {
			if _, err := os.Stat("input/go" + strconv.Itoa(n)); err == nil {
				return
			}
			if kind != "busy" {
				time.Sleep(look)
			}
			for end := time.Now().Add(look); kind == "busy" && time.Now().Before(end); {
			}
		}
	}
	note("start %s", token)
	pause(1)
	fmt.Println("Final Validation Performance: 0.222")
	note("score 0.222")
	pause(2)
	answer()
	fmt.Println("Final Validation Performance: 0.585")
	note("score 0.585")
	pause(3)
	note("end %d", code)
	os.Exit(code)
}

// arguments come from the command line, or from the script that the interpreter is to run.
func arguments() (kind string, code int, token string, wait bool) {
	args := os.Args[1:]
	wait = len(args) == 3
	if len(args) == 1 {
		script, err := os.Open(args[0])
		if err != nil {
			fail(err)
		}
		line, _ := bufio.NewReader(script).ReadString('\n')
		args = strings.Fields(strings.TrimPrefix(line, "#"))
		if wait = len(args) == 4 && args[3] == "wait"; wait {
			args = args[:3]
		}
	}
	if len(args) != 3 {
		fail(fmt.Errorf("want KIND CODE TOKEN, got %q", args))
	}
	code, err := strconv.Atoi(args[1])
	if err != nil {
		fail(err)
	}
	return args[0], code, args[2], wait
}

// keepToTwo keeps this program to the first two processors that it may use, so that few programs
// are too many on any machine.
func keepToTwo() error {
	runtime.LockOSThread() // the other threads do nothing for long
	var all, two unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) && two.Count() < 2 {
			two.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(0, &two)
}

// failed is the exit code of a witness that could not do its work.
const failed = 99

func fail(err error) {
	fmt.Fprintln(os.Stderr, "witness:", err)
	os.Exit(failed)
}
