// Package wish reads what a gate is to prove, and seals it.
//
// A wish is a document of a person: commands, the folder that they may see, the image,
// limits (RT-01, RT-10). [Parse] turns it into a [Wish], in which every default is
// filled in, so that two documents that mean the same become the same bytes. [Seal] adds
// what names stood for when it was sealed (the ID of the image, the hashes of folders)
// and a hash over all of it; [ParseLock] finds out whether that was changed since. The
// hash is no signature: it finds changes, not forgers.
package wish
