package handover_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/handover"
)

// pair is both ends of a connection.
func pair(t *testing.T) (listener *handover.Listener, here, there *handover.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	_, err := handover.Dial(path)
	require.ErrorIs(t, err, handover.ErrNobody)
	require.NoError(t, os.WriteFile(path, nil, 0o600)) // of a process that died
	_, err = handover.Dial(path)
	require.ErrorIs(t, err, handover.ErrNobody)
	listener, err = handover.Listen(path)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "nobody else may connect")
	here, err = handover.Dial(path)
	require.NoError(t, err)
	t.Cleanup(func() { here.Close() })
	there, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { there.Close() })
	return listener, here, there
}

func TestFilesArriveWithTheirMessage(t *testing.T) {
	_, here, there := pair(t)
	for _, text := range []string{"one", "two"} {
		from, to, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, here.Send(map[string]string{"text": text}, to))
		require.NoError(t, to.Close())
		defer from.Close()
		var got map[string]string
		files, err := there.Receive(&got, time.Time{})
		require.NoError(t, err)
		require.Equal(t, text, got["text"])
		require.Len(t, files, 1)
		_, err = files[0].WriteString(text)
		require.NoError(t, err)
		require.NoError(t, files[0].Close())
		all, err := io.ReadAll(from) // ends: nobody else has a copy
		require.NoError(t, err)
		require.Equal(t, text, string(all))
	}
	require.NoError(t, here.Close())
	_, err := there.Receive(new(string), time.Time{})
	require.ErrorIs(t, err, io.EOF)
}

func TestMessagesAreBounded(t *testing.T) {
	_, here, there := pair(t)
	require.ErrorContains(t, here.Send(strings.Repeat("x", 200<<10)), "longer than")
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.NoError(t, here.Send("many", null, null, null, null, null, null))
	_, err = there.Receive(new(string), time.Time{})
	require.ErrorContains(t, err, "too long", "files that were not expected")
	require.NoError(t, here.Send(12))
	_, err = there.Receive(new(string), time.Time{})
	require.ErrorContains(t, err, "cannot unmarshal")
}

// TestLast checks that the end of the patience is the end for both sides.
func TestLast(t *testing.T) {
	past := time.Unix(1, 0)
	_, here, there := pair(t)
	require.ErrorIs(t, there.Last(new(string), past), io.EOF)
	require.Error(t, here.Send("too late"))

	_, here, there = pair(t)
	require.NoError(t, here.Send("in time"))
	var got string
	require.NoError(t, there.Last(&got, past), "it had arrived")
	require.Equal(t, "in time", got)
}

// TestListenerOfAPathThatAnotherHas: its end leaves the socket of the other one.
func TestListenerOfAPathThatAnotherHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := handover.Listen(path)
	require.NoError(t, err)
	second, err := handover.Listen(path)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.True(t, second.IsThere())
	require.NoError(t, second.Close())
	require.NoFileExists(t, path)
}

func TestListenerThatNobodyFinds(t *testing.T) {
	listener, _, _ := pair(t)
	require.True(t, listener.IsThere())
	path := listener.Addr().String()
	require.NoError(t, os.Remove(path))
	require.False(t, listener.IsThere())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.False(t, listener.IsThere(), "another one has its name")

	_, err := handover.Listen(filepath.Join(t.TempDir(), strings.Repeat("long", 30)))
	require.ErrorContains(t, err, "choose a shorter state directory")
}
