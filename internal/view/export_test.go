package view

// Layout is layout, for tests from outside, which may use the engine.
var Layout = layout
