// Package meter measures what a contestant costs: processor time, memory,
// round trips, WAL, disk. It reads counters that the kernel and PostgreSQL
// keep anyway, and estimates nothing: what can't be read is an error.
package meter
