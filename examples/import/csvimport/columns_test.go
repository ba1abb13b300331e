package csvimport

import (
	"slices"
	"strings"
	"testing"
)

func TestColumnNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 40)
	got, err := columnNames([]string{"Organization Name", " organization-name ", "", "Line", "select", `"; DROP TABLE x; --`, "Größe (cm)", "\xff", long, long})
	if err != nil {
		t.Fatal(err)
	}
	cutLong := strings.Repeat("é", 31)
	want := []string{"organization_name", "organization_name_2", "column_3", "line_2", "select", "drop_table_x", "größe_cm", "column_8", cutLong, strings.Repeat("é", 30) + "_2"}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	for _, name := range got {
		if len(name) > maxName {
			t.Errorf("%q has %d bytes", name, len(name))
		}
	}
	if _, err := columnNames(make([]string, maxColumns+1)); err == nil {
		t.Error("a table can't have so many columns")
	}
	if _, err := columnNames(make([]string, maxColumns)); err != nil {
		t.Error(err)
	}
}

func TestSchemaName(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/data/OUI list.csv":                    "import_oui_list_01234567",
		"/data/.csv":                            "import_file_01234567",
		"/" + strings.Repeat("x", 200) + ".txt": "import_" + strings.Repeat("x", 40) + "_01234567",
	} {
		if got := schemaName(path, "0123456789abcdef"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
