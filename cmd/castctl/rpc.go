package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func rpcCommand() *cli.Command {
	return &cli.Command{
		Name: "rpc", Usage: "speak the control protocol on stdin and stdout",
		Description: "One request object a line, one response a line, in order. Exits 0 if all succeeded, 1 if one or more failed,\n" +
			"2 if it could not start or the streams failed. stdout carries nothing but responses.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "schema", Usage: "print the JSON Schema of requests and responses"},
			&cli.BoolFlag{Name: "memory", Usage: "use a private temporary home, removed at the end"},
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.NArg() > 0:
				return usage{"rpc takes no arguments"}
			case c.Bool("schema"):
				_, err := c.App.Writer.Write(wire.Control.Schema("castctl control protocol"))
				return err
			case c.Bool("memory"):
				return inMemory(c, func(home lease.Home) error { return rpc(c, home) })
			}
			home, err := openHome(c)
			if err != nil {
				return err
			}
			return rpc(c, home)
		},
	}
}

// rpc serves stdin until it ends.
func rpc(c *cli.Context, home lease.Home) error {
	cl, err := connectTo(c.Context, home)
	if err != nil {
		report(os.Stderr, err)
		return exit{exitUnable}
	}
	s := &rpcSession{home: home, client: cl, out: bufio.NewWriter(c.App.Writer)}
	defer func() { s.client.Close() }()
	err = s.serve(c.Context, c.App.Reader)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		fmt.Fprintf(os.Stderr, "castctl: rpc: %v\n", err)
		return exit{exitUnable}
	case s.failed:
		return exit{exitRefused}
	}
	return nil
}

type rpcSession struct {
	home   lease.Home
	client *client.Client
	out    *bufio.Writer
	failed bool
}

// serve answers line by line. A read of stdin cannot be interrupted, so it runs
// beside, and a signal ends the command all the same.
func (s *rpcSession) serve(ctx context.Context, in io.Reader) error {
	lines := wire.NewLines(in, wire.MaxLine)
	type read struct {
		line []byte
		err  error
	}
	reads, next := make(chan read), make(chan struct{})
	go func() {
		for range next {
			line, err := lines.Next()
			reads <- read{line, err}
		}
	}()
	defer close(next)
	for {
		next <- struct{}{}
		var line []byte
		var err error
		select {
		case r := <-reads:
			line, err = r.line, r.err
		case <-ctx.Done():
			go func() { <-reads }()
			return ctx.Err()
		}
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			return s.answer(wire.Fail("", wire.Errorf(wire.RequestTooLarge, "a line is longer than %d bytes", wire.MaxLine)))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("stdin: %w", err)
		}
		if err := s.request(ctx, line); err != nil {
			return err
		}
	}
}

// request carries one line out. What is wrong with the line itself is answered
// here; the rest is forwarded as it is.
func (s *rpcSession) request(ctx context.Context, line []byte) error {
	req, bad := wire.Control.Decode(line)
	if bad != nil {
		return s.answer(wire.Fail(req.ID, bad))
	}
	raw, failed := s.client.Forward(ctx, req.Command.Op(), line)
	if failed != nil {
		s.reconnect(ctx)
		return s.answer(wire.Fail(req.ID, failed))
	}
	r, err := wire.DecodeResponse(raw)
	if err != nil {
		return s.answer(wire.Fail(req.ID, wire.Unknownf(wire.Internal, "the response cannot be read: %v", err)))
	}
	s.failed = s.failed || r.Error != nil
	return s.write(raw)
}

// reconnect prepares for the next request. The failed one is not sent again:
// that is the caller's to decide, with the same id.
func (s *rpcSession) reconnect(ctx context.Context) {
	if cl, err := connectTo(ctx, s.home); err == nil {
		s.client.Close()
		s.client = cl
	}
}

func (s *rpcSession) answer(r wire.Response) error {
	s.failed = s.failed || r.Error != nil
	return s.write(r.Encode())
}

func (s *rpcSession) write(b []byte) error {
	s.out.Write(b)
	if len(b) == 0 || b[len(b)-1] != '\n' {
		s.out.WriteByte('\n')
	}
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	return nil
}
