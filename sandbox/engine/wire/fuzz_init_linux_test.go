package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// answer is init's reaction to bytes on its stdin.
type answer struct {
	accepted, refused bool
	code              int
}

// ask starts init as an unprivileged user, and sends it the bytes and the end of stdin.
func ask(t *testing.T, path string, sent []byte) answer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: programUID, Gid: programUID}
	} else {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	cmd.Env = []string{"PATH=/missing"}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(sent)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var a answer
	frame := func() frameType {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(stdout, header); err != nil {
			return 0
		}
		kind, size, err := parseHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, stdout, int64(size)); err != nil {
			t.Fatal(err)
		}
		return kind
	}
	if frame() != typeReady {
		t.Fatal("init is not ready")
	}
	switch frame() {
	case typeAccepted:
		a.accepted = true
		// The run of the program is not tested here.
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	case typeRefused:
		a.refused = true
	case 0, typeReady, typeReport, typeWaiting, typeJob, typeInput, typeBye, typeWait, typeLook:
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait() // the exit code is checked instead
	a.code = cmd.ProcessState.ExitCode()
	return a
}

// FuzzJob checks that init accepts exactly the jobs that are valid in Go, refuses all others
// with 125, and does not crash.
func FuzzJob(f *testing.F) {
	for _, job := range []Job{
		{Args: []string{"no-such-command"}, Dir: "/"},
		{Nonce: NewNonce(), Args: []string{"no-such-command", "", "b"}, Env: []string{"A=1", "PATH="}, Dir: "/proc", Timeout: time.Second, Grace: time.Millisecond,
			SoftLead: time.Millisecond, SoftSignal: syscall.SIGTERM, OrphanLimit: time.Hour, DeadlineVar: "DEADLINE",
			Rlimits: []Rlimit{{7, 20, 30}}, OOMScoreAdj: 7, NoFork: true, Stdin: true, Relay: &Relay{8080, 3, "/missing.sock"}},
	} {
		frame, err := job.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
		f.Add(frame[:len(frame)-3])
		f.Add(append(frame, newFrame(typeBye, nil)...))
		f.Add(append(frame, frame...))
	}
	f.Add(newFrame(typeBye, nil))
	f.Add([]byte("\x00EBX\x01\x10\x00\x00\xff\xff\xff\xff"))
	binary, err := Init(runtime.GOARCH)
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	path := filepath.Join(dir, "sandbox-init")
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil { // the program's user executes it
			f.Fatal(err)
		}
	}
	if err := os.WriteFile(path, binary, 0o755); err != nil { // as above
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if job, err := decodeJob(sent[min(len(sent), headerSize):]); err == nil && strings.Contains(job.Args[0], "/") {
			return // a fuzzer must not find programs to run
		}
		if len(sent) >= headerSize && (frameType(sent[5]) == typeWait || frameType(sent[5]) == typeLook) {
			return // as above, and init goes on to wait for a job
		}
		got := ask(t, path, sent)
		if want := expected(sent); got.accepted != want.accepted || got.refused != want.refused || !got.accepted && got.code != 125 {
			t.Fatalf("init: %+v, expected %+v, of %q", got, want, sent)
		}
	})
}

// expected is the reaction that init must have to the bytes.
func expected(sent []byte) answer {
	if len(sent) < headerSize {
		return answer{}
	}
	size := binary.LittleEndian.Uint32(sent[8:])
	if !bytes.Equal(sent[:8], []byte{0, 'E', 'B', 'X', formatVersion, byte(typeJob), 0, 0}) || size > maxJob {
		return answer{refused: true}
	}
	if uint64(len(sent)-headerSize) < uint64(size) {
		return answer{}
	}
	_, err := decodeJob(sent[headerSize : headerSize+int(size)])
	return answer{accepted: err == nil, refused: err != nil}
}
