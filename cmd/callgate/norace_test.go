//go:build !race

package main

const everyLine = 1
