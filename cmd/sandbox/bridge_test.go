package main

import "github.com/evalbox/evalbox/cmd/sandbox/cli"

type interruption = cli.Interruption
