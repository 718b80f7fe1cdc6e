package wire

// Operations lists a set's operations for the tests.
func (s *Set) Operations() []Operation {
	var ops []Operation
	for _, name := range s.names {
		ops = append(ops, s.ops[name])
	}
	return ops
}
