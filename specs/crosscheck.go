package specs

func (l *loader) crossCheck(b *Bundle) {}
