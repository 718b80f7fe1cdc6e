// Package e2e runs Cast as a user would, from its built binaries, with real
// agents from npm. It holds tests only; they are built with the tag e2e and run
// by make e2e, after e2e/install.sh.
package e2e
