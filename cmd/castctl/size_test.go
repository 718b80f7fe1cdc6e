//go:build !e2e

package main

// fuzzedLines is how many lines the fuzz test pushes through castctl rpc.
const fuzzedLines = 20_000
