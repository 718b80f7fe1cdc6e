package forecast

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/castctl/castctl/wire"
)

// Agent answers requests from a ledger. It serves one stream at a time.
type Agent struct {
	Ledger *Ledger
	Now    func() time.Time // nil is the clock
}

// query reads the ledger.
type query interface {
	wire.Command
	read(b *book, now time.Time) (any, error)
}

// mutation changes the ledger.
type mutation interface {
	wire.Command
	// apply changes the book, or fails and leaves it to be rolled back.
	apply(b *book, now time.Time) error
	// facts are what the result tells around the receipt.
	facts(b *book, r Receipt, now time.Time) (any, error)
}

// Answer carries out the request on a line. ctx only bounds the wait for the
// ledger's lock: a change that has begun is finished.
func (a *Agent) Answer(ctx context.Context, line []byte) wire.Response {
	request, failure := Ops.Decode(line)
	if failure != nil {
		return wire.Fail(request.ID, failure)
	}
	result, err := a.do(ctx, request)
	if err != nil {
		failure := wire.AsError(err)
		failure.Details.Method = request.Command.Op()
		return wire.Fail(request.ID, failure)
	}
	return wire.Succeed(request.ID, result)
}

func (a *Agent) do(ctx context.Context, request wire.Request) (result any, err error) {
	switch c := request.Command.(type) {
	case BinaryScore:
		return c.score()
	case query:
		now := a.now()
		err = a.Ledger.view(ctx, func(b *book) error {
			result, err = c.read(b, now)
			return err
		})
	case mutation:
		err = a.Ledger.update(ctx, request.ID, func(b *book) (done bool, err error) {
			// The clock is read once the lock is held: receipts are in the order
			// of their commits, as far as the clocks of the machine agree.
			result, done, err = mutate(b, request.ID, c, a.now())
			return done, err
		})
	}
	return result, err
}

// mutate applies a command, or finds that it was applied before.
func mutate(b *book, id string, c mutation, now time.Time) (result any, done bool, err error) {
	hash, err := wire.Hash(c)
	if err != nil {
		return nil, false, err
	}
	receipt, known, err := b.receipt(id, hash)
	if err != nil {
		return nil, false, err
	}
	if !known {
		if err := c.apply(b, now); err != nil {
			return nil, false, err
		}
		if receipt, err = newReceipt(id, c.Op(), now); err != nil {
			return nil, false, err
		}
		if err := b.putReceipt(receipt, hash); err != nil {
			return nil, false, err
		}
	}
	result, err = c.facts(b, receipt, now)
	return result, known, err
}

func (a *Agent) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return wire.Now()
}

// Serve answers every line of in until its end, until ctx is done, or until a
// line is too long. clean says that every request succeeded; the error, that in
// or out failed. An answer is written, by one write, before the next line is
// looked at.
func (a *Agent) Serve(ctx context.Context, in io.Reader, out io.Writer) (clean bool, err error) {
	lines := readAhead(in)
	defer lines.stop()
	clean = true
	for {
		line, err := lines.next(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return clean, nil
		case errors.Is(err, wire.ErrLineTooLong):
			tooLarge := wire.Errorf(wire.RequestTooLarge, "a line has at most %d bytes with its newline", wire.MaxLine)
			return false, write(out, wire.Fail("", tooLarge))
		case err != nil:
			return clean, &StreamError{Stream: "stdin", Err: err}
		}
		response := a.Answer(ctx, line)
		clean = clean && response.Error == nil
		if err := write(out, response); err != nil {
			return clean, err
		}
	}
}

// StreamError is the failure of one end of a served stream.
type StreamError struct {
	Stream string // stdin, stdout
	Err    error
}

func (e *StreamError) Error() string { return e.Stream + ": " + e.Err.Error() }
func (e *StreamError) Unwrap() error { return e.Err }

func write(out io.Writer, r wire.Response) error {
	if _, err := out.Write(r.Encode()); err != nil {
		return &StreamError{Stream: "stdout", Err: err}
	}
	return nil
}

// lineSource reads lines in a goroutine of its own, one at a time, because a
// blocked read cannot be interrupted: on SIGTERM it is left behind.
type lineSource struct {
	ask  chan struct{}
	read chan lineRead
}

type lineRead struct {
	line []byte
	err  error
}

func readAhead(in io.Reader) lineSource {
	// The answer's place is kept in the channel, so that the goroutine ends even
	// when nobody waits any more.
	s := lineSource{ask: make(chan struct{}), read: make(chan lineRead, 1)}
	go func() {
		lines := wire.NewLines(in, wire.MaxLine)
		for range s.ask {
			line, err := lines.Next()
			s.read <- lineRead{line, err}
		}
	}()
	return s
}

func (s lineSource) next(ctx context.Context) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.ask <- struct{}{}
	select {
	case r := <-s.read:
		return r.line, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s lineSource) stop() { close(s.ask) }
