package lock

import (
	"fmt"
	"io"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/opencontainers/go-digest"
	"github.com/package-url/packageurl-go"

	"github.com/evalbox/evalbox/images/packages"
)

// WriteSBOM writes the bill of materials of an image: CycloneDX 1.6, as JSON, from
// the list of packages in its entry. The same entry gives the same bytes: the
// serial number is made of the content, and the time is that of the image.
func WriteSBOM(w io.Writer, e Entry) error {
	bom := cdx.NewBOM()
	bom.SerialNumber = serialNumber(e)
	bom.Metadata = &cdx.Metadata{
		Timestamp: e.Created.UTC().Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: e.Content, Type: cdx.ComponentTypeContainer, Name: e.Name, Version: e.ID,
			Properties: &[]cdx.Property{
				{Name: "evalbox:base", Value: e.Base},
				{Name: "evalbox:base_digest", Value: e.BaseDigest},
				{Name: "evalbox:content", Value: e.Content},
				{Name: "evalbox:packages_sha256", Value: e.Packages.SHA256()},
				{Name: "evalbox:platform", Value: e.Platform},
			},
		},
	}
	components := []cdx.Component{}
	for _, p := range e.Packages {
		purl := packageURL(p, e.System)
		components = append(components, cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl,
		})
	}
	bom.Components = &components
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	return encoder.EncodeVersion(bom, cdx.SpecVersion1_6)
}

// packageURL is the name of a package in every ecosystem.
func packageURL(p packages.Package, system string) string {
	switch p.Kind {
	case packages.Deb:
		vendor, _, _ := strings.Cut(system, " ")
		if vendor == "" {
			vendor = "debian"
		}
		var qualifiers packageurl.Qualifiers
		if p.Arch != "" {
			qualifiers = packageurl.QualifiersFromMap(map[string]string{"arch": p.Arch})
		}
		return packageurl.NewPackageURL(packageurl.TypeDebian, vendor, p.Name, p.Version, qualifiers, "").ToString()
	case packages.Conda:
		return packageurl.NewPackageURL(packageurl.TypeConda, "", p.Name, p.Version, nil, "").ToString()
	case packages.Python:
	}
	return packageurl.NewPackageURL(packageurl.TypePyPi, "", p.Name, p.Version, nil, "").ToString()
}

// serialNumber is a UUID (version 8, RFC 9562) that the entry decides.
func serialNumber(e Entry) string {
	h := digest.FromString(strings.Join([]string{e.Name, e.ID, e.Content, e.Packages.SHA256()}, "\n")).Encoded()
	return fmt.Sprintf("urn:uuid:%s-%s-8%s-a%s-%s", h[:8], h[8:12], h[12:15], h[15:18], h[18:30])
}
