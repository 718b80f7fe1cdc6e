package main

const help = `supercast-agent keeps a ledger of forecasts and speaks newline-delimited JSON:
one request a line on stdin, one response a line on stdout, in order.

  supercast-agent --db PATH    keep the ledger in a file; several processes may share it
  supercast-agent --memory     keep it in memory; it ends with the process
  supercast-agent --help | --version | --schema
                               say so and exit; no ledger is opened

Request and response:

  {"version":1,"id":"request-001","command":{"op":"binary_score","probability":0.3,"outcome":true}}
  {"version":1,"id":"request-001","result":{"brier":0.49,"log":1.2039728043259361}}

Calculation:
  binary_score     probability outcome
Reads:
  event_get        event_id
  event_list       status? after? limit?
  forecast_list    event_id forecaster? after? limit?
  leaderboard      limit?
Changes:
  event_create     event_id question closes_at?
  forecast_record  event_id forecaster probability
  event_resolve    event_id outcome
  event_void       event_id reason

The id of a change is its key in the ledger: send it again after a timeout or a
lost response and the original receipt comes back; with other content it is a
conflict. A line has at most 1 MiB with its newline; a longer one ends the
stream. The log score of a sure forecast that was wrong is infinite, which JSON
cannot say: binary_score refuses it, and the leaderboard shows null.

Exit codes:
  0  every request succeeded
  1  a request failed, or a line was too long
  2  it could not start, or stdin or stdout failed
`
