package main
import "context"
func lifecycle(ctx context.Context, s settings) error { return nil }
func size(ctx context.Context) error { return nil }
