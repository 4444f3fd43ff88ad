// Package images knows which images programs may run in.
//
// A [Catalog] names images. [Resolve] turns a name, or any reference the engine
// knows, into one immutable image ID; it never pulls. [Ensure] makes an image of
// the catalog when it is not there: its base is a root file system from Debian
// packages, which needs no registry, or an image that [Pull] pulls by its digest;
// Dockerfile.runner is built on it, with Python packages whose hashes are pinned.
// [List] says which images of a catalog are there.
//
// The tag of an image holds a hash of its recipe, see [Entry.Tag]: a changed
// recipe is another image, and an existing tag needs no work.
//
// A [Lock] records what names meant when they were locked: [LockImage] and
// [SettleLock] write it, [Lock.Check] compares, [Verify] reads the image again.
// [Inspect] and [WriteSBOM] tell what is installed in an image, [Export] and
// [Import] move a locked one between engines, and [Prune] makes room. None of them
// runs anything of an image.
//
// Errors name the image and the step. Errors that a user can mend have a method
// Hint() string.
package images
