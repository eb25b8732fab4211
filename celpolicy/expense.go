package celpolicy

// expense bounds what a lowered expression can cost: base, and slope for each byte of the call's arguments, in
// 64ths, and the weight of the person's roles so many times. Where a cost hangs on anything else it is steep, and
// nothing is promised.
type expense struct {
	base, slope, roles uint64
	steep              bool
}

func (x *expense) add(y expense) {
	x.base += y.base
	x.slope += y.slope
	x.roles += y.roles
	x.steep = x.steep || y.steep
}

// most is the largest cost for a call of at most MaxArgsBytes. The parts of what is not steep are below 2^32.
func (x *expense) most(argBytes int, roles uint64) uint64 {
	if x.steep || argBytes > MaxArgsBytes {
		return ^uint64(0)
	}
	return x.base + x.slope*uint64(argBytes)/64 + x.roles*roles
}

// maxToolText is the longest text of a tool's document that an expression can see, with room to spare.
const maxToolText = 4096

// reads counts the reading of arguments, which a decision pays once; once for each use is enough.
func (x *expense) reads() { x.slope += 13 }

// weighs counts the weight of one operand.
func (x *expense) weighs(t *term) {
	switch {
	case t.constant:
		x.base += t.value.weight()
	case t.origin == fromArgs:
		x.base++
		x.slope += 7
	case t.origin == fromTool:
		x.base += maxToolText / 10
	case t.origin == fromNumber:
		x.base++
	default:
		x.steep = true
	}
}

func (x *expense) sum(a, b *term) {
	x.weighs(a)
	x.weighs(b)
}

// lighter counts the lighter of two operands.
func (x *expense) lighter(a, b *term) {
	switch {
	case a.constant || a.origin == fromNumber:
		x.weighs(a)
	case b.constant || b.origin == fromNumber:
		x.weighs(b)
	case a.origin == fromElsewhere:
		x.weighs(b)
	default:
		x.weighs(a)
	}
}

// product counts a pattern walked along a text.
func (x *expense) product(text, pattern *term) {
	if !pattern.constant {
		x.steep = true
		return
	}
	each := 1 + uint64(len(pattern.value.s))/8
	x.base += each
	x.scan(text, 4*each)
}

// scan counts so many 64ths for each byte of a text.
func (x *expense) scan(t *term, each uint64) {
	switch {
	case t.constant:
		x.base += mulCost(1+uint64(len(t.value.s)), each)/64 + 1
	case t.origin == fromArgs:
		x.base += each + 1
		x.slope += each
	case t.origin == fromTool:
		x.base += mulCost(1+maxToolText, each)/64 + 1
	case t.origin == fromNumber:
		x.base += each + 1
	default:
		x.steep = true
	}
}
