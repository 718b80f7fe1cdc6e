package server

import (
	"net"

	"github.com/castctl/castctl/wire"
)

// StatusOf is the HTTP status of an error.
func StatusOf(c wire.Code) int { return statusOf[c] }

// ServeTCP serves another listener as if it were the TCP one.
func (s *Server) ServeTCP(l net.Listener) { s.doors[0].Serve(l) }
