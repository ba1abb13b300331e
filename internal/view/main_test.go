package view

import (
	"os"
	"testing"

	"github.com/pawlworks/pawl/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
