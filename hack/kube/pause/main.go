// Command pause is the first process of every pod: it holds the pod's namespaces
// until the node stops it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGINT, syscall.SIGTERM)
	<-stopped
}
