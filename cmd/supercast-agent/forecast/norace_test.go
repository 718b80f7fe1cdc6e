//go:build !race

package forecast_test

const raceEnabled = false
