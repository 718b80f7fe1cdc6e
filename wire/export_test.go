package wire

// Operations lists a set's operations for the tests.
func (s *Set) Operations() []Operation { return s.ops }
