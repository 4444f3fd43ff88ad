package porter

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Channels of a [Header].
const (
	// channelInit is the streams of init.
	channelInit = "init"
	// channelFill sends an archive to the volume, and channelFetch reads one.
	channelFill  = "fill"
	channelFetch = "fetch"
	// channelOpen lets the program's container start, and channelAwait waits for that.
	channelOpen  = "open"
	channelAwait = "await"
	// channelReach answers.
	channelReach = "reach"
)

// Header is the first line of a connection.
type Header struct {
	Channel string `json:"channel"`
	// Client distinguishes controllers: a second connection of the same one replaces the first.
	Client string `json:"client,omitempty"`
	// Out and Err are the bytes of the streams that the controller has.
	Out int64 `json:"out,omitempty"`
	Err int64 `json:"err,omitempty"`
	// Transfer identifies a channelFill across connections.
	Transfer string `json:"transfer,omitempty"`
	// Path is what channelFetch reads, relative to the volume.
	Path string `json:"path,omitempty"`
}

// hello says how many bytes for init, and how many requests of this controller, have arrived.
type hello struct {
	In       int64 `json:"in"`
	Requests int   `json:"requests"`
}

type gap struct {
	Kind  string `json:"kind"`
	Start int64  `json:"start"`
}

// verdict is the end of a transfer.
type verdict struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	Error  string `json:"error,omitempty"`
	// Missing says that the path does not exist.
	Missing bool `json:"missing,omitempty"`
}

const (
	maxRecord = 64 << 10
	maxHeader = 16 << 10
	// window is how many bytes for init may be on their way.
	window = 1 << 20
)

var errRecord = errors.New("not a record of the porter")

// writeRecord writes one record with one call.
func writeRecord(to io.Writer, kind byte, payload []byte) error {
	record := make([]byte, 5, 5+len(payload))
	record[0] = kind
	binary.LittleEndian.PutUint32(record[1:], uint32(len(payload)))
	_, err := to.Write(append(record, payload...))
	return err
}

func writeJSON(to io.Writer, kind byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeRecord(to, kind, text)
}

// readRecord reads one record. The payload is valid until the next call with the same buffer.
func readRecord(from *bufio.Reader, buffer []byte) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxRecord {
		return 0, nil, fmt.Errorf("%w: kind %q of %d bytes", errRecord, head[0], n)
	}
	_, err = io.ReadFull(from, buffer[:n])
	return head[0], buffer[:n], err
}

func writeHeader(to io.Writer, h Header) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

func readHeader(from *bufio.Reader) (h Header, err error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxHeader {
			return h, fmt.Errorf("%w: a header of more than %d bytes", errRecord, maxHeader)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return h, err
		}
	}
	return h, json.Unmarshal(line, &h)
}
