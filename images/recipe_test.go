package images

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRecipeChangesWithWhatDecidesTheImage(t *testing.T) {
	cat := testCatalog(t)
	base, _ := cat.Lookup("small")
	assert.Regexp(t, `^evalbox/small:[0-9a-f]{12}$`, base.Tag())

	for name, change := range map[string]func(*Entry, *Bootstrap){
		"packages":     func(_ *Entry, b *Bootstrap) { b.Packages = []string{"python3"} },
		"stand-ins":    func(_ *Entry, b *Bootstrap) { b.StandIns = nil },
		"exclude":      func(_ *Entry, b *Bootstrap) { b.Exclude = nil },
		"suite":        func(_ *Entry, b *Bootstrap) { b.Suite = "trixie" },
		"epoch":        func(_ *Entry, b *Bootstrap) { b.Epoch = b.Epoch.AddDate(0, 0, 1) },
		"dockerfile":   func(e *Entry, _ *Bootstrap) { e.DockerfileSHA256 = "0" + e.DockerfileSHA256[1:] },
		"requirements": func(e *Entry, _ *Bootstrap) { e.RequirementsSHA256 = e.DockerfileSHA256 },
	} {
		t.Run(name, func(t *testing.T) {
			e, b := base, *base.Base.Bootstrap
			e.Base.Bootstrap = &b
			change(&e, &b)
			assert.NotEqual(t, base.Tag(), e.Tag())
		})
	}

	described := base
	described.Description = "other words"
	assert.Equal(t, base.Tag(), described.Tag(), "the description is not part of the recipe")

	onRegistry, _ := cat.Lookup("pip")
	later := onRegistry
	later.Epoch = later.Epoch.AddDate(0, 0, 1)
	assert.NotEqual(t, onRegistry.Tag(), later.Tag(), "the time stamp is part of the recipe")
}
