package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine/docker"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox"
)

// app is what the commands share: one command line of one process.
type app struct {
	streams                  Streams
	outTerminal, errTerminal bool
	inTerminal               bool
	environ                  []string

	// configFile is the flag --config, given the flags that are settings.
	configFile string
	given      map[string]value
	verbose    bool

	// command is the path of the command that runs, such as "sandbox run".
	command string

	// code is the exit code of a command that did its work.
	code int
}

// sources are where this command line takes its settings from.
func (a *app) sources() sources {
	// An account without a place for configuration has none.
	userDir, err := os.UserConfigDir()
	if err != nil {
		userDir = ""
	}
	return sources{configFile: a.configFile, userDir: userDir, environ: a.environ, flags: a.given}
}

// settings reads and decides all settings.
func (a *app) settings() (settings, error) {
	s, err := a.sources().load()
	return s, flagProblems(a.command, err)
}

// flagProblems makes a usageError of a flag of a command that cannot be read. A value
// that could be read but is refused is refused the same way from everywhere.
func flagProblems(command string, err error) error {
	for _, e := range parts(err) {
		var bad *settingError
		if errors.As(e, &bad) && bad.Flag && !errors.Is(e, errOutOfRange) {
			return usagef(command, "%s", e.Error())
		}
	}
	return err
}

// maxCatalog bounds an image catalog.
const maxCatalog = 16 << 20

// catalog reads the image catalog that the settings name.
func (s settings) catalog() (images.Catalog, error) {
	if s.Catalog == "" {
		return images.LoadCatalog(configs.Images(), "images.yaml")
	}
	data, err := fsx.Read(s.Catalog, maxCatalog)
	if err != nil {
		return images.Catalog{}, &fileError{fileCatalog, s.Catalog, err}
	}
	return images.LoadCatalog(data, s.Catalog)
}

// stateDir is the folder of records and locks.
func (s settings) stateDir() (string, error) {
	if s.StateDir != "" {
		return s.StateDir, nil
	}
	dir, err := record.DefaultDir()
	if err != nil {
		return "", &hintedError{err, "set HOME, or name a folder with --state-dir"}
	}
	return dir, nil
}

// store opens the records.
func (s settings) store() (*record.Store, error) {
	dir, err := s.stateDir()
	if err != nil {
		return nil, err
	}
	return record.Open(dir)
}

// openStore is the settings and the records that they name.
func (a *app) openStore() (settings, *record.Store, error) {
	s, err := a.settings()
	if err != nil {
		return settings{}, nil, err
	}
	store, err := s.store()
	return s, store, err
}

// openRecord is the settings, the records, and one of them.
func (a *app) openRecord(id string) (settings, *record.Store, record.Record, error) {
	s, store, err := a.openStore()
	if err != nil {
		return settings{}, nil, record.Record{}, err
	}
	record, err := store.Get(id)
	return s, store, record, err
}

// openRunner is the settings and a runner made of them, which the caller closes.
func (a *app) openRunner() (settings, *sandbox.Runner, error) {
	s, err := a.settings()
	if err != nil {
		return settings{}, nil, err
	}
	runner, err := a.runner(s)
	return s, runner, err
}

// runner makes the runner that the settings describe. The caller closes it.
func (a *app) runner(s settings) (*sandbox.Runner, error) {
	catalog, err := s.catalog()
	if err != nil {
		return nil, err
	}
	lock, locked, err := a.lock(s)
	if err != nil {
		return nil, err
	}
	dir, err := s.stateDir()
	if err != nil {
		return nil, err
	}
	engine, err := docker.Connect(s.Engine)
	if err != nil {
		return nil, err
	}
	options := []sandbox.Option{
		sandbox.WithCatalog(catalog), sandbox.WithPolicy(s.policy()), sandbox.WithStateDir(dir),
		sandbox.WithEngine(engine),
	}
	if locked {
		options = append(options, sandbox.WithLock(lock))
	}
	if s.GPUDir != "" {
		options = append(options, sandbox.WithGPUDir(s.GPUDir))
	}
	if a.verbose {
		handler := slog.NewTextHandler(a.streams.Err, &slog.HandlerOptions{Level: slog.LevelDebug})
		options = append(options, sandbox.WithLogger(slog.New(handler)))
	}
	runner, err := sandbox.New(options...)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return runner, nil
}

// printJSON prints a value for programs.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.streams.Out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return readerGone(encoder.Encode(v))
}

// print prints text for people. Everything that may come from a stranger is made
// harmless; our own text holds nothing that this would change.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprint(a.streams.Out, terminal.Text(fmt.Sprintf(format, args...)))
	return readerGone(err)
}

// printTable prints rows in columns. A cell is one line.
func (a *app) printTable(header []string, rows [][]string) error {
	table := tabwriter.NewWriter(a.streams.Out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(table, "\t") // errors come back from Flush
			}
			fmt.Fprint(table, terminal.Line(cell))
		}
		fmt.Fprintln(table)
	}
	return readerGone(table.Flush())
}
