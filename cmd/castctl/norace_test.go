//go:build !race

package main

// raceEnabled has the programs built like the tests.
const raceEnabled = false
