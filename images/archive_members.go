package images

import (
	"archive/tar"
	"fmt"
	"regexp"
)

// maxMembers bounds the members of an archive. An image has at most 127 layers.
const maxMembers = 2000

// What engines write when they save an image: the older ones a folder for each
// layer, the newer ones blobs. An engine follows links while it unpacks an archive,
// so that "manifest.json" can be written in more ways than one; nothing but these
// names is let through, and each once. The one link is that of a layer which the
// image has twice, and no name goes on below it.
var (
	memberFiles   = regexp.MustCompile(`^(manifest\.json|repositories|index\.json|oci-layout|[0-9a-f]{64}\.json|[0-9a-f]{64}/(VERSION|json|layer\.tar)|blobs/sha256/[0-9a-f]{64})$`)
	memberFolders = regexp.MustCompile(`^([0-9a-f]{64}|blobs|blobs/sha256)/$`)
	memberLinks   = regexp.MustCompile(`^[0-9a-f]{64}/layer\.tar -> \.\./[0-9a-f]{64}/layer\.tar$`)
)

// memberNames are the members of an archive so far.
type memberNames map[string]bool

// add refuses what no saved image has.
func (seen memberNames) add(header *tar.Header) error {
	name := header.Name
	known := false
	switch header.Typeflag {
	case tar.TypeReg:
		known = memberFiles.MatchString(name)
	case tar.TypeDir:
		known = memberFolders.MatchString(name)
	case tar.TypeSymlink:
		known = memberLinks.MatchString(name + " -> " + header.Linkname)
	}
	switch {
	case seen[name]:
		return fmt.Errorf("has two members %.100q", name)
	case !known:
		return fmt.Errorf("%.100q (type %q) is no part of a saved image", name, header.Typeflag)
	case len(seen) >= maxMembers:
		return fmt.Errorf("has more than %d members", maxMembers)
	}
	seen[name] = true
	return nil
}
