package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// book is the ledger's file: a JSON object a line, only ever appended to.
//
//   - What append has returned is on disk. Whoever answers before it returns
//     promises what a killed provider may have forgotten.
//   - Appends that wait at the same time share one write and one sync.
//   - After a write or sync has failed nothing is appended any more: nobody
//     knows what the disk holds then, and the next open will see.
type book struct {
	file *os.File

	mu      sync.Mutex
	seq     int64
	lines   []byte // to be written
	waiting []chan error
	writing bool
	broken  error
}

// openBook opens the ledger or makes it, and returns what it holds. A last line
// that was not finished belongs to an answer that nobody got: it is cut off.
func openBook(path string) (*book, Ledger, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("provider: the ledger: %w", err)
	}
	ledger, err := recall(file)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("provider: the ledger %s: %w", path, err), file.Close())
	}
	b := &book{file: file}
	if len(ledger) > 0 {
		b.seq = ledger[len(ledger)-1].Seq
	}
	return b, ledger, nil
}

func recall(file *os.File) (ledger Ledger, err error) {
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole < len(text) {
		if err := file.Truncate(int64(whole)); err != nil {
			return nil, err
		}
	}
	for n, line := range bytes.SplitAfter(text[:whole], []byte("\n")) {
		if len(line) == 0 {
			break // after the last newline
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		ledger = append(ledger, e)
	}
	return ledger, nil
}

// append numbers the entry and returns it when it is durable.
func (b *book) append(e Entry) (Entry, error) {
	done := make(chan error, 1)
	b.mu.Lock()
	if b.broken != nil {
		defer b.mu.Unlock()
		return e, b.broken
	}
	e.Seq = b.seq + 1
	e.ID = fmt.Sprintf("%s-%06d", e.Kind, e.Seq)
	line, err := json.Marshal(e)
	if err != nil {
		defer b.mu.Unlock()
		return e, err
	}
	b.seq = e.Seq
	b.lines = append(append(b.lines, line...), '\n')
	b.waiting = append(b.waiting, done)
	if !b.writing {
		b.writing = true
		go b.write()
	}
	b.mu.Unlock()
	return e, <-done
}

// write writes until nobody waits.
func (b *book) write() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		lines, waiting := b.lines, b.waiting
		b.lines, b.waiting = nil, nil
		err := b.broken
		if err == nil {
			b.mu.Unlock()
			if _, err = b.file.Write(lines); err == nil {
				err = b.file.Sync()
			}
			b.mu.Lock()
			b.broken = err
		}
		for _, done := range waiting {
			done <- err
		}
	}
	b.writing = false
}

func (b *book) close() error { return b.file.Close() }
