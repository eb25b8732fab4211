//go:build unix

package chat

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openNoWait keeps an open from waiting when a pipe was put where a file should be.
const openNoWait = unix.O_NONBLOCK

// tryLock takes the whole-file lock that ends with the process or with closing the file, whichever is first.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}

// syncFolder makes a rename survive a power cut.
func syncFolder(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
