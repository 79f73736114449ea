package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDelays(t *testing.T) {
	table, err := os.ReadFile("../../delays.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(table)), "\n")[1:]
	for _, line := range rows {
		var numbers [4]float64 // attempt, Retry-After (0 for none), chance, seconds
		for i, cell := range strings.Split(line, "\t") {
			if numbers[i], err = strconv.ParseFloat(strings.TrimPrefix(cell, "-"), 64); err != nil && cell != "-" {
				t.Fatal(err)
			}
		}
		var retryAfter *time.Duration
		if !strings.Contains(line, "-") {
			retryAfter = new(time.Duration(numbers[1]) * time.Second)
		}
		found := delay(int(numbers[0]), retryAfter, numbers[2])
		if difference := found.Seconds() - numbers[3]; max(difference, -difference) > 1e-6 {
			t.Errorf("%s: %v", line, found)
		}
	}
	t.Log(len(rows), "delays")
}
