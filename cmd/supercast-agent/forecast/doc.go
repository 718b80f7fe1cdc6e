// Package forecast is the reference agent of the ndjson dialect: a ledger of
// events and of what forecasters said about them, behind lines of JSON.
//
//	{"version":1,"id":"request-001","command":{"op":"binary_score","probability":0.3,"outcome":true}}
//	{"version":1,"id":"request-001","result":{"brier":0.49,"log":1.2039728043259361}}
//
// An [Agent] answers one line at a time; [Agent.Serve] does so for a stream. A
// [Ledger] is where the answers come from: a bbolt file, or memory that no file
// system ever sees.
//
// # Retries
//
// The id of a mutation is an idempotency key for the whole ledger. The change
// and its receipt are one transaction, and a second request with the id and the
// content of the first gets the first one's receipt, byte for byte, for as long
// as the ledger exists. The same id with other content is a conflict. A request
// that failed has left nothing behind, its id included. Around the receipt, a
// result holds present facts: a retry that comes after the event was resolved
// shows it resolved.
//
// # Sharing
//
// A ledger is opened for each command and closed before the answer, so that
// one process a worker can share a file. The file's kernel lock (flock, shared
// for reads) keeps them apart; who does not get it within [LockWait] is answered
// unavailable, not_sent.
//
// # Damage
//
// bbolt maps its file into memory: a truncated one makes the process fault, and
// an empty one is taken for a new database. So a missing file is created whole
// under another name and linked into place, an empty one is never ours, and
// each open checks that the file is as long as its meta pages say. What still
// goes wrong inside bbolt is caught, the lock is given back, and the same
// damaged bytes are not mapped again. A damaged file is never written to.
//
// # Scores
//
// brier is (p-o)², log is -ln of the probability given to what happened. A
// probability of exactly 0 for what happened has an infinite log score, which
// JSON cannot say: binary_score refuses it with invalid_request, and the
// leaderboard shows such a forecaster's log as null. Of several forecasts by one
// forecaster on one event the last counts, and only resolved events count.
package forecast
