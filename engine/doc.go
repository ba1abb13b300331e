// Package engine starts runs of workflows, waits for them, and works on them,
// on PostgreSQL and nothing else.
//
// A process makes one [Engine] with [New]. With only the contract of a workflow
// it can [Start], [Find] and [Run.Wait]; with the workflow's definition in
// [Config] it can [Engine.Work] as well. Any number of processes may do both, on
// one database.
//
// # What is durable when
//
// [Start], [StartMany], [Engine.Cancel], [Engine.Replay], [Engine.Resolve] and
// [Engine.ReleaseKey] return nil only when their commit is durable; [StartTx]
// joins the caller's transaction. A step is done when the commit that says so
// is, and the same commit makes the next step due. A step's body runs at least
// once; its completion is recorded once.
//
// # Ownership
//
// A job is leased: to an owner (a random id for each call of Work), with a token
// that every grant and every transition raises, until a time of the database's
// clock. Everything that a worker writes about a job carries owner and token, and
// is refused as a whole when they are not current or the lease has expired. A
// lease is renewed only for progress; nothing runs past its max runtime. A
// process that dies loses its session, and with it all its leases, within
// [Config.Session].
//
// # Deploying
//
// A run keeps the graph it was started with; the code supplies steps by name.
// Options may change at any time, a step may be renamed with steps.Formerly, and
// steps that are added or moved are for new runs. What no live worker knows is
// stranded: left as it is, reported, and carried on by the first worker that
// knows it.
package engine
