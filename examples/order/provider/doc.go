// Package provider is the world outside of the shop, with the manners of a
// real one: it charges cards, sends parcels and mails, over HTTP.
//
//	POST /charges            charges; needs an Idempotency-Key
//	GET  /charges?key=…      the look-up: what became of the charge of that key
//	POST /parcels, /mails    send; a key is remembered for ever
//	GET  /ledger             everything that has happened
//	GET  /counts             how many of each kind
//	POST /switches           faults, from now on; GET shows them
//
// Its ledger is a file, synced before a charge is answered, so a provider that
// is killed and started again has forgotten nothing that it has told anybody.
// Its memory of idempotency keys is shorter than its ledger, as everywhere.
package provider
