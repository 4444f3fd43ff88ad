package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// formatVersion is the only version of the frame format.
const formatVersion = 1

const (
	headerSize = 12
	fieldSize  = 8
	nonceSize  = 32
	// shownNonce is the number of nonce bytes that the answer to a job repeats.
	shownNonce = 8

	maxJob    = 4 << 20
	maxInput  = 64 << 10
	maxReady  = 1 << 20
	maxReport = 128 << 10
)

type frameType byte

const (
	typeReady    frameType = 1
	typeAccepted frameType = 2
	typeReport   frameType = 3
	typeRefused  frameType = 4
	typeWaiting  frameType = 5
	typeJob      frameType = 16
	typeInput    frameType = 17
	typeBye      frameType = 18
	typeWait     frameType = 19
	typeLook     frameType = 20
)

var magic = [4]byte{0, 'E', 'B', 'X'}

// errFormat means that the bytes are not a valid frame from init.
var errFormat = errors.New("not a frame of sandbox-init")

// maxPayload is the largest payload of a frame from init, by type.
func maxPayload(t frameType) int {
	switch t {
	case typeReady:
		return maxReady
	case typeReport, typeRefused, typeAccepted, typeWaiting:
		return maxReport
	case typeJob, typeInput, typeBye, typeWait, typeLook: // sent to init
	}
	return 0
}

// newFrame puts a header in front of a payload.
func newFrame(t frameType, payload []byte) []byte {
	to := append(make([]byte, 0, headerSize+len(payload)), magic[:]...)
	to = append(to, formatVersion, byte(t), 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(payload)))
	return append(to, payload...)
}

// parseHeader parses the header of a frame from init.
func parseHeader(h []byte) (frameType, int, error) {
	t, n := frameType(h[5]), binary.LittleEndian.Uint32(h[8:])
	switch {
	case [4]byte(h) != magic:
		return 0, 0, fmt.Errorf("%w: it begins with %q", errFormat, h[:4])
	case h[4] != formatVersion:
		return 0, 0, fmt.Errorf("%w: it has version %d, and %d is known", errFormat, h[4], formatVersion)
	case h[6] != 0 || h[7] != 0 || int64(n) > int64(maxPayload(t)):
		return 0, 0, fmt.Errorf("%w: type %d with %d bytes", errFormat, t, n)
	}
	return t, int(n), nil
}

// appendField appends one field to a payload.
func appendField(to []byte, tag uint16, value []byte) []byte {
	to = binary.LittleEndian.AppendUint16(to, tag)
	to = append(to, 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(value)))
	return append(to, value...)
}

// fields iterates over the fields of a payload. If the payload is malformed, the last pair
// has the tag 0 and a nil value.
func fields(payload []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(payload) > 0 {
			if len(payload) < fieldSize || payload[2] != 0 || payload[3] != 0 {
				yield(0, nil)
				return
			}
			tag, n := binary.LittleEndian.Uint16(payload), binary.LittleEndian.Uint32(payload[4:])
			payload = payload[fieldSize:]
			if int64(n) > int64(len(payload)) {
				yield(0, nil)
				return
			}
			if !yield(tag, payload[:n:n]) {
				return
			}
			payload = payload[n:]
		}
	}
}

func word(value []byte) (uint32, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(value), true
}
