//go:build windows

package chat

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// openNoWait is nothing here: there are no pipes among the files of a folder.
const openNoWait = 0

// tryLock takes the whole-file lock that ends with the process or with closing the file, whichever is first.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder is nothing here: a rename is part of the file system's own journal.
func syncFolder(*os.Root, string) error { return nil }
