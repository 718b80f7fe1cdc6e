package proc

import (
	"strings"
	"time"

	"github.com/shirou/gopsutil/v3/process"
)

// Usage is what a set of processes costs together.
type Usage struct {
	RSS       int64         // resident memory, bytes; shared pages count in each process
	CPU       time.Duration // user and system time so far
	Processes int           // how many of them could be measured
}

// Measure adds up what the given processes cost now. Those that ended or may
// not be read count nothing.
func Measure(pids []int) Usage {
	var u Usage
	for _, pid := range pids {
		p := &process.Process{Pid: int32(pid)}
		mem, err := p.MemoryInfo()
		if err != nil || mem.RSS == 0 {
			continue // a zombie has no memory
		}
		u.Processes++
		u.RSS += int64(mem.RSS)
		if t, err := p.Times(); err == nil {
			u.CPU += time.Duration((t.User + t.System) * float64(time.Second))
		}
	}
	return u
}

// Info describes a process to a person. Nothing is decided by it.
type Info struct {
	PID, PPID int
	Args      []string
	Terminal  string // empty for a process without a controlling terminal
	RSS       int64
	Started   time.Time
}

// Describe reads what a person wants to know of a process.
func Describe(pid int) (Info, error) {
	p := &process.Process{Pid: int32(pid)}
	args, err := p.CmdlineSlice()
	if err != nil {
		return Info{}, err
	}
	for i := range args { // any bytes may stand there; whoever is told of them wants text
		args[i] = strings.ToValidUTF8(args[i], "\uFFFD")
	}
	in := Info{PID: pid, Args: args}
	if n, err := p.Ppid(); err == nil {
		in.PPID = int(n)
	}
	if t, err := p.Terminal(); err == nil {
		in.Terminal = t
	}
	if m, err := p.MemoryInfo(); err == nil {
		in.RSS = int64(m.RSS)
	}
	if ms, err := p.CreateTime(); err == nil {
		in.Started = time.UnixMilli(ms)
	}
	return in, nil
}
