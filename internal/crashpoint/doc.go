// Package crashpoint names the places at which the murder tests kill a
// process: before each durable act. In an ordinary build [At] does nothing and
// costs nothing; built with the tag crashpoints, a process that passes the
// point named in the environment variable CAST_CRASHPOINT kills itself with
// SIGKILL, exactly as an impatient person or the kernel's OOM killer would.
//
// The variable holds NAME or NAME@N for the N-th passage. With
// CAST_CRASHPOINT_ONCE=PATH the first process to arrive creates that file and
// dies; every later one passes.
package crashpoint
