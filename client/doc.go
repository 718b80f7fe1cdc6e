// Package client finds a home's supervisor or starts it, calls it, and follows
// its events: what the command line does, as a Go library.
//
//	c, err := client.Connect(ctx, client.Config{Home: home, Start: client.Spawn})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	var r wire.InstanceResult
//	err = c.Call(ctx, wire.NewID(), wire.Stop{Instance: "fix"}, &r)
//
// # Trust
//
// The record in server.json is believed only for a living process. Before
// anything worth having is sent, the server must prove that it knows the
// record's token, on this very connection; a squatter on the socket or the port
// gets nothing. Over the unix socket the kernel vouches for the client, and the
// token stays at home.
//
// One that does not prove itself in time is not waited for; one that leaves just
// then is not mistaken for its successor.
//
// # Errors
//
// A [wire.Error] says whether the change may have happened. Nothing here
// retries by itself: a connection that drops after the first byte of a request
// has left is delivery unknown, and a deliberate retry with the same id is safe.
// Before that byte the connection is looked at, so a request to a supervisor that
// had closed it is known not to have been sent. A connection that was lost stays
// lost: connect again.
package client
