package contract

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/policy"
)

// keyFile is the key of the ledger. No ID of an approval is such a name.
const keyFile = ".key"

const keyBytes = 32

// Seal gives an approval its MAC, over everything else that it holds: so that nobody
// without access to the state folder can make one, or change its ID to use it again.
func (l ApprovalLedger) Seal(a Approval) (Approval, error) {
	key, err := l.key(true)
	if err == nil {
		a.MAC, err = a.mac(key)
	}
	if err != nil {
		return Approval{}, fmt.Errorf("sealing approval %s: %w", a.ID, err)
	}
	return a, nil
}

// Check says why an approval cannot be used from this ledger: it was not sealed here,
// was changed, or was used. It changes nothing. The error means that this could not be
// found out.
func (l ApprovalLedger) Check(a Approval) ([]Violation, error) {
	failed := func(err error) ([]Violation, error) {
		return nil, fmt.Errorf("checking approval %s: %w", quoted(a.ID), err)
	}
	key, err := l.key(false)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = nil, nil // nothing was sealed here
	}
	if err != nil {
		return failed(err)
	}
	if key == nil || !a.sealed(key) {
		return []Violation{{Code: "CK-01", Field: "approval.mac", Rule: "the approval was not made here, or was changed"}}, nil
	}
	if wrong := policy.CheckName("id", a.ID); wrong != nil {
		return failed(wrong)
	}
	path := filepath.Join(l.Dir, a.ID+".json")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return failed(err)
	}
	return []Violation{usedViolation(l.used(a.ID, path))}, nil
}

func (a Approval) sealed(key []byte) bool {
	given, err := hex.DecodeString(a.MAC)
	if err != nil {
		return false
	}
	want, err := a.mac(key)
	if err != nil {
		return false
	}
	bytes, err := hex.DecodeString(want)
	return err == nil && hmac.Equal(given, bytes)
}

func (a Approval) mac(key []byte) (string, error) {
	a.MAC = ""
	text, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// key is the ledger's key. Of several processes that make it at once, all have the same.
func (l ApprovalLedger) key(make bool) ([]byte, error) {
	path := filepath.Join(l.Dir, keyFile)
	key, err := readRegular(path, keyBytes)
	if make && errors.Is(err, fs.ErrNotExist) {
		if err := l.makeKey(path); err != nil {
			return nil, err
		}
		key, err = readRegular(path, keyBytes)
	}
	if err != nil {
		return nil, err
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("%s: has %d bytes, not %d", path, len(key), keyBytes)
	}
	return key, nil
}

// makeKey puts a whole key in place, or leaves that of somebody else.
func (l ApprovalLedger) makeKey(path string) (err error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(l.Dir, keyFile+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	secret := [keyBytes]byte{}
	_, _ = rand.Read(secret[:]) // never fails
	_, err = file.Write(secret[:])
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
