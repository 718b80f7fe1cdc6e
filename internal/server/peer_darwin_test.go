//go:build darwin

package server_test

import "errors"

func becomeThread(int) error { return errors.New("threads have no users of their own here") }
