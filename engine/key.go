package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// effect is what an idempotency key is made of. Every part is stored, or made
// again the same by a caller that starts a lost run again under its key.
type effect struct {
	workflow, ordering string
	caller             string // the caller's key; else the run's id
	hasKey             bool
	generation         int32  // how many starts the caller's key has had
	step               string // the place by the stored graph's names,
	path               string // with the element and round numbers around it
	effectGen          int32  // raised by a replay with corrected input
	direction          string // do or undo
}

// key is a SHA-256 over the length-prefixed parts.
func (e effect) key() []byte {
	h := sha256.New()
	kind := "run"
	if e.hasKey {
		kind = "key"
	}
	for _, s := range []string{e.workflow, e.ordering, kind, e.caller, fmt.Sprint(e.generation), e.step, e.path, fmt.Sprint(e.effectGen), e.direction} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return h.Sum(nil)
}

func keyText(key []byte) string { return hex.EncodeToString(key) }

// shardOf is pawl.shard_of: the first four bytes of the key's SHA-256, modulo
// the number of shards.
func shardOf(key string, shards int16) int16 {
	sum := sha256.Sum256([]byte(key))
	return int16(binary.BigEndian.Uint32(sum[:4]) % uint32(shards))
}

// shardIn reads the shard out of a run's id: the twelve rand_a bits.
func shardIn(id uuid.UUID) int16 { return int16(binary.BigEndian.Uint16(id[6:8]) & 0x0fff) }
