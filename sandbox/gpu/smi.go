package gpu

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// smiLimit bounds a query: nvidia-smi may hang when the driver has a problem.
	smiLimit = 10 * time.Second
	// maxSMI bounds the output that is kept. That of 64 GPUs has 10 KiB.
	maxSMI = 256 << 10
)

// ErrNoTool means that nvidia-smi is not on the PATH.
var ErrNoTool = errors.New("nvidia-smi not found")

// An SMIError is a failure of nvidia-smi.
type SMIError struct {
	// Text is the first line that it printed, as bounded printable ASCII; it may be
	// empty.
	Text string
	// Err is the error of the process; nil if it exited with 0.
	Err error
}

func (e *SMIError) Error() string {
	switch {
	case e.Text == "":
		return fmt.Sprintf("nvidia-smi failed: %v", e.Err)
	case e.Err == nil:
		return fmt.Sprintf("nvidia-smi says %q", e.Text)
	}
	return fmt.Sprintf("nvidia-smi says %q (%v)", e.Text, e.Err)
}

func (e *SMIError) Unwrap() error { return e.Err }

// smi runs nvidia-smi and returns its stdout, also with an error. The error quotes stdout
// first, because nvidia-smi prints errors there.
func smi(ctx context.Context, args ...string) (string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return "", ErrNoTool
	}
	ctx, cancel := context.WithTimeoutCause(ctx, smiLimit, fmt.Errorf("no answer within %v", smiLimit))
	defer cancel()
	var stdout, stderr head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A child of nvidia-smi that keeps the pipe open must not delay the caller.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stdout.text(), &SMIError{Text: harmless(firstLine(stdout.text() + "\n" + stderr.text())), Err: err}
	}
	return stdout.text(), nil
}

// head keeps the beginning of a stream, and reads all of it.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxSMI-len(h.kept))]...)
	return len(p), nil
}

func (h *head) text() string { return string(h.kept) }

// firstLine returns the first line that is not empty.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// maxQuote bounds a quoted text in a message.
const maxQuote = 200

// harmless makes a text fit for a message: bounded, printable ASCII.
func harmless(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), 4*maxQuote)])
	if len(text) > maxQuote {
		return text[:maxQuote] + "…"
	}
	return text
}

// handleText begins nvidia-smi's message about a GPU that it cannot open.
const handleText = "Unable to determine the device handle for"

// errorWords occur in nvidia-smi's error messages, and in no name of a product.
var errorWords = []string{
	"nvidia-smi", "failed", "error", "err!", "unable to", "unknown", "not found", "were found", "is lost", "mismatch",
	"not supported", "couldn't", "could not", "insufficient", "permission", "reboot", "please", "warning", "[n/a]",
}

const (
	// maxName is NVML's limit for the name of a product.
	maxName = 96
	// maxWords is more than any name has. The first line of a longer error message has
	// more.
	maxWords = 9
)

// isProduct distinguishes the name of a product from an error message.
func isProduct(name string) bool {
	if name == "" || len(name) > maxName || strings.HasSuffix(name, ".") || strings.ContainsAny(name, ":[],") ||
		len(strings.Fields(name)) > maxWords {
		return false
	}
	low := strings.ToLower(name)
	return harmless(name) == name && !slices.ContainsFunc(errorWords, func(word string) bool { return strings.Contains(low, word) })
}

// parseNames reads the answer to a query for names. Lines that are not names are ignored.
// The list is never nil and has at most 64 names.
func parseNames(out string) []string {
	names := []string{}
	for line := range strings.Lines(out) {
		if name := strings.TrimSpace(line); isProduct(name) && len(names) < maxGPUs {
			names = append(names, name)
		}
	}
	return names
}

// parseDevices reads the answer to a query for the fields of [Probe]. Lines that are not
// rows are error messages of the driver. If there is no row at all, the first of them is
// the error. A row with an error message in place of a value is a GPU with a problem.
func parseDevices(out string) ([]Device, error) {
	var devices []Device
	complaint := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if d, ok := parseDevice(line); ok && len(devices) < maxGPUs && !slices.ContainsFunc(devices, func(o Device) bool { return o.ID == d.ID }) {
			devices = append(devices, d)
		} else if complaint == "" {
			complaint = harmless(line)
		}
	}
	if len(devices) == 0 {
		if complaint == "" {
			complaint = "(nothing)"
		}
		return nil, &SMIError{Text: complaint}
	}
	return devices, nil
}

// parseDevice reads one row.
func parseDevice(line string) (Device, bool) {
	reader := csv.NewReader(strings.NewReader(line))
	reader.TrimLeadingSpace, reader.LazyQuotes = true, true
	cells, err := reader.Read()
	if err != nil || len(cells) < 6 || len(cells) > 7 {
		return Device{}, false
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	index, err := strconv.Atoi(cells[0])
	if err != nil || index < 0 {
		return Device{}, false
	}
	d := Device{ID: strconv.Itoa(index), TotalBytes: mebibytes(cells[3]), UsedBytes: mebibytes(cells[4])}
	if isID(cells[1]) {
		d.UUID = cells[1]
	}
	if isProduct(cells[2]) {
		d.Name = cells[2]
	}
	d.Problem = problem(cells)
	return d, true
}

// problem returns the [Device.Problem] of a row.
func problem(cells []string) string {
	for i, cell := range cells {
		// A property that a GPU does not have is "[N/A]" or "[Not Supported]".
		low := strings.ToLower(strings.Trim(cell, "[]"))
		if strings.Contains(low, "lost") || strings.Contains(low, "requires reset") || strings.Contains(low, "err!") ||
			strings.Contains(low, "unknown error") || i < 3 && strings.HasPrefix(cell, "[") {
			return fmt.Sprintf("nvidia-smi cannot read it: %q", harmless(cell))
		}
	}
	if n, err := strconv.ParseInt(cells[5], 10, 64); err == nil && n > 0 {
		return fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded", n)
	}
	if len(cells) > 6 && cells[6] == "Enabled" {
		return "is split into parts (MIG mode), which are not lent"
	}
	return ""
}

// mebibytes converts an amount of memory of nvidia-smi to bytes.
func mebibytes(cell string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(cell, " MiB"), 10, 40)
	if err != nil || n < 0 {
		return Unknown
	}
	return n << 20
}

// isID reports whether a text may name a GPU: an index or a UUID.
func isID(id string) bool {
	if id == "" || len(id) > 64 || id[0] == '-' {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-')
	}) < 0
}
