package specs

// Nearest gives the known word that a misspelt one most likely meant, or "": the rule behind every "did you
// mean" of ours, for the rooms that check names the loader cannot know.
func Nearest(word string, known []string) string { return nearest(word, known) }
