package celpolicy

func (c *compiler) lint(p *Policy) {}
