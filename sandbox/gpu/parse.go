package gpu

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// handleText begins what nvidia-smi says of a GPU that it cannot open.
const handleText = "Unable to determine the device handle for"

// errorWords stand in what nvidia-smi prints in place of an answer and in no
// name of a product.
var errorWords = []string{
	"nvidia-smi", "failed", "error", "err!", "unable to", "unknown", "not found", "were found", "is lost", "mismatch",
	"not supported", "couldn't", "could not", "insufficient", "permission", "reboot", "please", "warning", "[n/a]",
}

const (
	// maxName is NVML's limit for the name of a product.
	maxName = 96
	// maxWords is more than any name has; a sentence that goes on in the next
	// line has more.
	maxWords = 9
)

// isProduct tells the name of a product from a text about a failure.
func isProduct(name string) bool {
	if name == "" || len(name) > maxName || strings.HasSuffix(name, ".") || strings.ContainsAny(name, ":[],") ||
		len(strings.Fields(name)) > maxWords {
		return false
	}
	low := strings.ToLower(name)
	return harmless(name) == name && !slices.ContainsFunc(errorWords, func(word string) bool { return strings.Contains(low, word) })
}

// parseNames reads the answer to a query for names. Lines that are no names are
// left out. The list is never nil and has at most 64 names.
func parseNames(out string) []string {
	names := []string{}
	for line := range strings.Lines(out) {
		if name := strings.TrimSpace(line); isProduct(name) && len(names) < maxGPUs {
			names = append(names, name)
		}
	}
	return names
}

// parseDevices reads the answer to a query for the fields of [Probe]. Lines that
// are no rows are the driver's complaints: with no row at all the first of them
// is the error. A row with a complaint in place of a value is a GPU with a
// problem.
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

// problem is what is wrong with the GPU of a row.
func problem(cells []string) string {
	for i, cell := range cells {
		// What a GPU does not have is "[N/A]" or "[Not Supported]".
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

// mebibytes is an amount of memory as nvidia-smi tells it, in bytes.
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
