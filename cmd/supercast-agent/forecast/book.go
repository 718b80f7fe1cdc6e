package forecast

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"github.com/castctl/castctl/wire"
)

// The buckets of a ledger:
//
//	meta       "format"   → format
//	events     event id   → eventRow
//	forecasts  event id   → bucket: number (8 bytes, big-endian) → forecastRow
//	standing   event id   → bucket: forecaster → number of his last forecast
//	receipts   request id → SHA-256 of the command, then the receipt as sent
//
// Nothing is ever deleted, so a forecast's number is its bucket's sequence.
var (
	metaBucket = []byte("meta")
	events     = []byte("events")
	forecasts  = []byte("forecasts")
	standing   = []byte("standing")
	receipts   = []byte("receipts")

	formatKey = []byte("format")
	format    = []byte("supercast ledger 1")
)

// layOut makes the buckets of a new ledger.
func layOut(tx *bbolt.Tx) error {
	for _, name := range [][]byte{metaBucket, events, forecasts, standing, receipts} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, format)
}

// isLedger refuses the bbolt files of other programs and of later formats.
func isLedger(tx *bbolt.Tx) error {
	b := tx.Bucket(metaBucket)
	if b == nil {
		return ErrForeign
	}
	if got := b.Get(formatKey); !bytes.Equal(got, format) {
		return ErrForeign
	}
	return nil
}

// book is a ledger within one transaction.
type book struct{ tx *bbolt.Tx }

type eventRow struct {
	Question  string     `json:"question"`
	CreatedAt time.Time  `json:"created_at"`
	ClosesAt  *time.Time `json:"closes_at"`
	Outcome   *bool      `json:"outcome"`
	Reason    *string    `json:"reason"` // void
	SettledAt *time.Time `json:"settled_at"`
}

type forecastRow struct {
	Forecaster  string    `json:"forecaster"`
	Probability float64   `json:"probability"`
	RecordedAt  time.Time `json:"recorded_at"`
}

// status is a function of the facts and the time.
func (e eventRow) status(now time.Time) Status {
	switch {
	case e.Reason != nil:
		return StatusVoid
	case e.Outcome != nil:
		return StatusResolved
	case e.ClosesAt != nil && !now.Before(*e.ClosesAt):
		return StatusClosed
	}
	return StatusOpen
}

func (b *book) hasEvent(id string) bool { return b.tx.Bucket(events).Get([]byte(id)) != nil }

// event finds an event, or fails with not_found at the pointer.
func (b *book) event(id string) (eventRow, error) {
	v := b.tx.Bucket(events).Get([]byte(id))
	if v == nil {
		return eventRow{}, wire.Errorf(wire.NotFound, "there is no event %q", id).At("/command/event_id")
	}
	var row eventRow
	return row, b.decode(v, &row)
}

func (b *book) putEvent(id string, row eventRow) error {
	v, err := json.Marshal(row)
	if err != nil {
		return err
	}
	return b.tx.Bucket(events).Put([]byte(id), v)
}

// show is an event as a result shows it.
func (b *book) show(id string, row eventRow, now time.Time) Event {
	e := Event{
		ID: id, Question: row.Question, Status: row.status(now), Outcome: row.Outcome, Reason: row.Reason,
		CreatedAt: row.CreatedAt, ClosesAt: row.ClosesAt, SettledAt: row.SettledAt,
	}
	if of := b.tx.Bucket(forecasts).Bucket([]byte(id)); of != nil {
		e.Forecasts = int64(of.Sequence())
	}
	return e
}

// showEvent finds an event as a result shows it.
func (b *book) showEvent(id string, now time.Time) (Event, error) {
	row, err := b.event(id)
	if err != nil {
		return Event{}, err
	}
	return b.show(id, row, now), nil
}

func (b *book) putForecast(eventID string, row forecastRow) error {
	of, err := b.tx.Bucket(forecasts).CreateBucketIfNotExists([]byte(eventID))
	if err != nil {
		return err
	}
	last, err := b.tx.Bucket(standing).CreateBucketIfNotExists([]byte(eventID))
	if err != nil {
		return err
	}
	n, err := of.NextSequence()
	if err != nil {
		return err
	}
	v, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := of.Put(number(n), v); err != nil {
		return err
	}
	return last.Put([]byte(row.Forecaster), number(n))
}

// standingForecast is the last one of a forecaster on an event.
func (b *book) standingForecast(eventID, forecaster string) (Forecast, error) {
	last, of := b.tx.Bucket(standing).Bucket([]byte(eventID)), b.tx.Bucket(forecasts).Bucket([]byte(eventID))
	if last == nil || of == nil {
		return Forecast{}, ErrDamaged
	}
	n := last.Get([]byte(forecaster))
	return b.showForecast(eventID, n, of.Get(n))
}

func (b *book) showForecast(eventID string, n, v []byte) (Forecast, error) {
	if len(n) != 8 {
		return Forecast{}, ErrDamaged
	}
	var row forecastRow
	if err := b.decode(v, &row); err != nil {
		return Forecast{}, err
	}
	return Forecast{
		EventID: eventID, Number: int64(binary.BigEndian.Uint64(n)),
		Forecaster: row.Forecaster, Probability: row.Probability, RecordedAt: row.RecordedAt,
	}, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// receipt finds the receipt of a request. The same id with another command is a
// conflict.
func (b *book) receipt(id string, hash [sha256.Size]byte) (r Receipt, known bool, err error) {
	v := b.tx.Bucket(receipts).Get([]byte(id))
	if v == nil {
		return Receipt{}, false, nil
	}
	if len(v) <= sha256.Size {
		return Receipt{}, false, ErrDamaged
	}
	stored := bytes.Clone(v[sha256.Size:]) // v ends with the transaction
	if err := b.decode(stored, &r); err != nil {
		return Receipt{}, false, err
	}
	if !bytes.Equal(v[:sha256.Size], hash[:]) {
		return Receipt{}, false, wire.Errorf(wire.Conflict, "the id was used for another %s, committed at %s: a new change needs a new id",
			r.Op, r.CommittedAt.Format(time.RFC3339Nano)).At("/id")
	}
	r.stored = stored
	return r, true, nil
}

func (b *book) putReceipt(r Receipt, hash [sha256.Size]byte) error {
	return b.tx.Bucket(receipts).Put([]byte(r.ID), append(hash[:], r.stored...))
}

func (b *book) decode(v []byte, into any) error {
	if err := json.Unmarshal(v, into); err != nil {
		return fmt.Errorf("%w (%v)", ErrDamaged, err)
	}
	return nil
}
