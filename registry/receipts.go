package registry

import (
	"bytes"
	"time"
)

// Receipt looks a receipt up; ok is false if there is none.
func (t *Tx) Receipt(id string) (s Stored, ok bool, err error) {
	v := t.tx.Bucket(bReceipts).Get([]byte(id))
	if v == nil {
		return Stored{}, false, nil
	}
	return s, true, decode(v, &s)
}

// PutReceipt stores a receipt, or another state of it: its time stays the same.
func (t *Tx) PutReceipt(id string, s Stored) error {
	b, err := encode(s)
	if err != nil {
		return err
	}
	if err := t.tx.Bucket(bReceiptTimes).Put(receiptTime(s.At, id), nil); err != nil {
		return err
	}
	return t.tx.Bucket(bReceipts).Put([]byte(id), b)
}

// DeleteReceipt takes a receipt back: its mutation was refused.
func (t *Tx) DeleteReceipt(id string) error {
	s, ok, err := t.Receipt(id)
	if !ok || err != nil {
		return err
	}
	if err := t.tx.Bucket(bReceiptTimes).Delete(receiptTime(s.At, id)); err != nil {
		return err
	}
	return t.tx.Bucket(bReceipts).Delete([]byte(id))
}

// HasReceiptBefore reports whether any receipt is older than the given time.
func (t *Tx) HasReceiptBefore(before time.Time) bool {
	k, _ := t.tx.Bucket(bReceiptTimes).Cursor().First()
	return k != nil && bytes.Compare(k, receiptTime(before, "")) < 0
}

// PruneReceipts removes receipts older than the given time, the oldest first
// and at most max of them, so that one transaction stays short.
func (t *Tx) PruneReceipts(before time.Time, max int) error {
	bound := receiptTime(before, "")
	var old [][]byte
	c := t.tx.Bucket(bReceiptTimes).Cursor()
	for k, _ := c.First(); k != nil && len(old) < max && bytes.Compare(k, bound) < 0; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := t.tx.Bucket(bReceiptTimes).Delete(k); err != nil {
			return err
		}
		if err := t.tx.Bucket(bReceipts).Delete(k[len(bound):]); err != nil {
			return err
		}
	}
	return nil
}

// receiptTime is a receipt's key in the order of time.
func receiptTime(at time.Time, id string) []byte {
	return append(number(uint64(at.UnixMicro())), id...)
}
