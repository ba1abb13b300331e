.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

demo: ## both examples on a throw-away PostgreSQL
	go run ./cmd/pawl demo

test: ## all tests
	go test ./...

crash: ## the crash suite, told as it goes
	go test . -run TestCrash -count=1 -v

race: ## the tests under the race detector
	go test -race ./...

generate: ## sqlc's code anew
	go generate ./...

bench: ## Pawl, the floor and the peers, in about two minutes
	cd bench && go run . -quick

ci: ## what CI runs
	bash .ci/run

.PHONY: help demo test crash race generate bench ci
